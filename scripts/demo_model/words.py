# SPDX-License-Identifier: Apache-2.0
"""The words the corpus is made of: names, relations and their values."""

from dataclasses import dataclass

NAMES = (
    "Ada Alan Alma Amir Ana Anton Aria Arne Asha Axel Bea Ben Bella Boris Bruno Cara Carl Celia "
    "Clara Cleo Cora Dana Dario David Dina Dora Edda Edgar Elena Eli Elsa Emil Emma Enzo Erik Esther "
    "Eva Felix Fiona Flora Frank Freya Gina Greta Gus Hana Hanna Hugo Ida Igor Ilse Ines Ingrid Ira "
    "Isaac Ivan Jack Jana Jasper Jim Joan Jonas Julia Juno Kai Karim Kate Kim Klara Lars Laura Lea Leo "
    "Lena Lily Lina Liam Lola Lucas Lucy Luis Luna Maja Malik Marco Maria Martha Max Maya Mia Milo Mira "
    "Mona Nadia Nina Noah Nora Odin Olaf Olga Oscar Otto Pablo Paul Petra Pia Quinn Rafael Ravi Rita "
    "Rosa Ruben Ruth Sam Sara Selma Simon Sofia Sven Tara Theo Tilda Tom Tova Uma Ursula Vera Victor "
    "Vito Wanda Will Yara Yusuf Zara Zeno Zoë"
).split()

SYLLABLES_FIRST = "Bel Bra Dor Fen Gal Hol Jor Kel Lor Mar Nel Or Pel Quin Ral Sel Tal Vel Wil Zor Tri Bo Ka Mi Xa".split()
SYLLABLES_NEXT = "a an ar bert dan den dra el fin go ia in ka la lin lo mar na nor o ra ric ro sa ta ton va vin wen zo".split()


@dataclass(frozen=True)
class Relation:
    """One thing that can be said of a person; {n} is the name, {v} the value.

    `verb` and `base` make "Mira lives in Oslo" and "Does Mira live in Oslo?",
    `told` makes "I was not told where Mira lives."
    """

    key: str
    verb: str
    base: str
    told: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    who: tuple[str, ...]
    values: tuple[str, ...]
    yes_no: str = "Does {n} {b}?"

    def sentence(self, name: str, value: str) -> str:
        """The one canonical sentence, which is also the expected answer."""
        return f"{name} {self.verb.format(v=value)}."


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.replace("\n", " ").split(","))


def _with_article(text: str) -> tuple[str, ...]:
    return tuple(("an " if w[0] in "aeiou" else "a ") + w for w in _words(text))


RELATIONS = (
    Relation(
        "city", "lives in {v}", "live in {v}", "where {n} lives",
        ("{n} lives in {v}.", "{n}'s home is in {v}.", "The home of {n} is in {v}.", "{n} has a flat in {v}."),
        ("Where does {n} live?", "In which city does {n} live?", "Where is {n}'s home?",
         "What city does {n} live in?", "Please tell me where {n} lives.", "Do you know where {n} lives?"),
        ("Who lives in {v}?", "Whose home is in {v}?"),
        _words("Oslo, Rome, Paris, Lima, Cairo, Tokyo, Berlin, Madrid, Vienna, Dublin, Athens, Prague, Lisbon, "
               "Boston, Delhi, Seoul, Sydney, Toronto, Warsaw, Geneva, Zürich, Malmö, Bergen, Venice, Naples, "
               "Porto, Havana, Quito, Nairobi, Dakar, Tunis, Hanoi, Osaka, Kyoto, Perth, Denver, Dallas, Miami, "
               "Chicago, London, Leeds, Oxford, York, Riga, Vilnius, Helsinki, Bern, Basel, Graz, Lyon, São Paulo, "
               "New York, Mexico City, Cape Town")),
    Relation(
        "job", "works as {v}", "work as {v}", "what work {n} does",
        ("{n} works as {v}.", "{n} is {v}.", "{n} earns a living as {v}.", "{n} has a job as {v}."),
        ("What is {n}'s job?", "What does {n} work as?", "What work does {n} do?",
         "What does {n} do for a living?", "Please tell me what work {n} does.", "Do you know what work {n} does?"),
        ("Who works as {v}?", "Who is {v}?"),
        _with_article("baker, doctor, teacher, farmer, pilot, painter, nurse, lawyer, sailor, gardener, cook, "
                      "writer, dentist, plumber, tailor, carpenter, driver, waiter, judge, builder, butcher, "
                      "dancer, singer, fisherman, librarian, mechanic, potter, chemist, barber, banker, clerk, "
                      "miner, weaver, editor, actor, architect, engineer, electrician, astronaut, artist, "
                      "optician, analyst, beekeeper, firefighter, photographer, detective, vet, postman")),
    Relation(
        "colour", "likes the colour {v}", "like the colour {v}", "which colour {n} likes",
        ("{n} likes the colour {v}.", "{n}'s favourite colour is {v}.", "The favourite colour of {n} is {v}.",
         "{n} prefers the colour {v}."),
        ("What is {n}'s favourite colour?", "Which colour does {n} like?", "What colour does {n} like best?",
         "Please tell me which colour {n} likes.", "Do you know which colour {n} likes?"),
        ("Who likes the colour {v}?", "Whose favourite colour is {v}?"),
        _words("red, green, blue, yellow, orange, purple, pink, brown, black, white, grey, violet, gold, silver, "
               "turquoise, beige, crimson, scarlet, indigo, teal, cream, olive, lilac, amber")),
    Relation(
        "pet", "has {v}", "have {v}", "what pet {n} has",
        ("{n} has {v}.", "{n} owns {v}.", "{n} keeps {v} at home.", "{n}'s pet is {v}."),
        ("What pet does {n} have?", "Which animal does {n} have?", "What is {n}'s pet?",
         "What animal does {n} keep?", "Please tell me what pet {n} has.", "Do you know what pet {n} has?"),
        ("Who has {v}?", "Who owns {v}?", "Whose pet is {v}?"),
        _with_article("cat, dog, parrot, rabbit, hamster, pony, goat, turtle, goldfish, canary, lizard, snake, "
                      "mouse, rat, duck, goose, hen, ferret, frog, spider, horse, donkey, sheep, lamb, crow, "
                      "falcon, owl, otter, iguana, ape, hedgehog, pigeon, llama, camel, tortoise, gecko")),
    Relation(
        "instrument", "plays {v}", "play {v}", "what instrument {n} plays",
        ("{n} plays {v}.", "{n} is learning {v}.", "{n}'s instrument is {v}.", "{n} practises {v} every day."),
        ("What instrument does {n} play?", "Which instrument does {n} play?", "What does {n} play?",
         "What is {n}'s instrument?", "Please tell me what instrument {n} plays.",
         "Do you know what instrument {n} plays?"),
        ("Who plays {v}?", "Whose instrument is {v}?"),
        tuple("the " + w for w in _words(
            "violin, piano, flute, cello, guitar, trumpet, harp, drums, oboe, clarinet, organ, banjo, tuba, "
            "trombone, viola, lute, horn, saxophone, bassoon, accordion, mandolin, recorder, bagpipes, "
            "double bass, ukulele, xylophone, triangle, harmonica"))),
    Relation(
        "drink", "drinks {v}", "drink {v}", "what {n} drinks",
        ("{n} drinks {v}.", "{n} always orders {v}.", "{n}'s favourite drink is {v}.",
         "The favourite drink of {n} is {v}."),
        ("What does {n} drink?", "What is {n}'s favourite drink?", "Which drink does {n} like?",
         "What does {n} like to drink?", "Please tell me what {n} drinks.", "Do you know what {n} drinks?"),
        ("Who drinks {v}?", "Whose favourite drink is {v}?"),
        _words("coffee, green tea, milk, water, lemonade, cocoa, apple juice, cider, beer, red wine, rum, soda, "
               "black tea, tonic, ginger ale, carrot juice, iced tea, espresso, mint tea, sherry, buttermilk, "
               "tomato juice, cold brew, hot chocolate")),
    Relation(
        "food", "eats {v}", "eat {v}", "what {n} eats",
        ("{n} eats {v}.", "{n} loves to eat {v}.", "{n}'s favourite food is {v}.",
         "The favourite food of {n} is {v}."),
        ("What does {n} eat?", "What is {n}'s favourite food?", "Which food does {n} like?",
         "What does {n} like to eat?", "Please tell me what {n} eats.", "Do you know what {n} eats?"),
        ("Who eats {v}?", "Whose favourite food is {v}?"),
        _words("pizza, pasta, rice, soup, bread, cheese, noodles, sushi, salad, curry, pancakes, waffles, beans, "
               "lentils, porridge, toast, dumplings, omelettes, potatoes, mushrooms, spinach, apples, pears, "
               "plums, cherries, grapes, melons, figs, olives, honey, crème brûlée, apple pie, chocolate cake, "
               "fried fish, roast beef, pea soup")),
    Relation(
        "age", "is {v} years old", "be {v} years old", "how old {n} is",
        ("{n} is {v} years old.", "{n}'s age is {v}.", "The age of {n} is {v}.", "{n} has just turned {v}."),
        ("How old is {n}?", "What is {n}'s age?", "What is the age of {n}?", "Please tell me how old {n} is.",
         "Do you know how old {n} is?"),
        ("Who is {v} years old?", "Whose age is {v}?"),
        tuple(str(age) for age in range(11, 99)),
        yes_no="Is {n} {v} years old?"),
    Relation(
        "hobby", "enjoys {v}", "enjoy {v}", "what {n} enjoys",
        ("{n} enjoys {v}.", "{n}'s hobby is {v}.", "The hobby of {n} is {v}.", "On Sundays {n} goes for some {v}."),
        ("What does {n} enjoy?", "What is {n}'s hobby?", "What is the hobby of {n}?",
         "Which hobby does {n} have?", "Please tell me what {n} enjoys.", "Do you know what {n} enjoys?"),
        ("Who enjoys {v}?", "Whose hobby is {v}?"),
        _words("chess, swimming, cycling, reading, sailing, hiking, skiing, climbing, running, fishing, knitting, "
               "dancing, tennis, football, golf, rowing, skating, archery, judo, yoga, boxing, surfing, diving, "
               "gardening, painting, cooking, card games, stargazing, birdwatching, pottery")),
    Relation(
        "country", "comes from {v}", "come from {v}", "which country {n} comes from",
        ("{n} comes from {v}.", "{n} was born in {v}.", "{n} grew up in {v}.", "{n}'s family is from {v}."),
        ("Where does {n} come from?", "Which country does {n} come from?", "Where was {n} born?",
         "What country is {n} from?", "Please tell me which country {n} comes from.",
         "Do you know which country {n} comes from?"),
        ("Who comes from {v}?", "Who was born in {v}?"),
        _words("Norway, Sweden, Denmark, Finland, Iceland, Ireland, Scotland, France, Spain, Portugal, Italy, "
               "Greece, Turkey, Poland, Hungary, Austria, Germany, Belgium, Egypt, Kenya, Ghana, Nigeria, "
               "Morocco, India, China, Japan, Korea, Vietnam, Thailand, Nepal, Canada, Mexico, Cuba, Peru, "
               "Chile, Brazil, Argentina, Australia, New Zealand, Ukraine")),
)

BY_KEY = {r.key: r for r in RELATIONS}
